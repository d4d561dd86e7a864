"""A running broker as the admin app sees it: one module per area of the app's views, joined by ``live.py``."""
