"""Commands that run almoner: the home, backups, schedules, the dashboard."""
