"""The demo's text: sentences with numbers, dates, times and amounts, and their translations."""
