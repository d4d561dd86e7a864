"""How tasks share the event loop: barriers around them, schedules, and turns for long work."""
