"""`python -m headrace`."""

from headrace import main

main()
