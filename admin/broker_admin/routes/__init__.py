"""The addresses the admin app answers, one file per subject, each with a list ``ROUTES``."""
