"""What each broker of the cluster answers alike; see ``broker_admin.views.cluster``. With one broker all is local."""
