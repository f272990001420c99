"""``python -m dpjax``: the command line of :mod:`dpjax.command_line`."""

from dpjax.command_line.main import main

if __name__ == "__main__":
    raise SystemExit(main())
