"""The admin HTTP server and page of a broker it knows only by two views, of its cluster and of itself.

Start reading at ``view.py`` (all that this app reads and changes), then ``app.py``. Importing ``broker_admin`` or
``broker_admin.view`` costs nothing: Starlette, hypercorn and Jinja2 are imported when a server is started.
"""
