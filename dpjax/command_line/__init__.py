"""The command line, ``python -m dpjax``.

``release`` and ``simulate`` give statistics of the columns of a file, by groups if wanted;
``ledger`` shows what was spent of a budget; ``demo`` draws private medians of random data.
``files`` reads a file, ``options`` has the options, and ``main`` runs a command.

A release prints private values and nothing else about the records: one that cannot be read counts
as missing, without a message. To see what is in a file, simulate. A mistake is one line on standard
error, with the exit code 2, and nothing is spent.
"""
