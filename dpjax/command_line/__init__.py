"""``python -m dpjax``: medians and quantiles of the columns of a file, a demo and an audit that need none.

A room that only reads the library: arguments -> a table of the file -> rows -> text or JSON.
"""
