"""What only this broker knows of itself; see ``broker_admin.views.node``."""
