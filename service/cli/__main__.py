"""``python -m service.cli``."""

from service.cli.completion import VARIABLE
from service.cli.main import main

main(prog_name="headrace", complete_var=VARIABLE)
