"""``python -m dpjax``: medians and quantiles of the columns of a file, and a demo that needs none.

A room that only reads the library: arguments -> a question -> a table of the file -> rows -> text or JSON.
"""
