"""``python -m service.cli``."""

try:
    from service.cli.main import COMPLETION_VARIABLE, main

    main(prog_name="headrace", complete_var=COMPLETION_VARIABLE)
except Exception as error:  # what a damaged module raises when it is imported may be anything; it is raised again
    from service.setup.mending import start_again_if_damaged

    start_again_if_damaged(error)
    raise
