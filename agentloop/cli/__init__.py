"""Programs for the terminal. Nothing else imports this."""
