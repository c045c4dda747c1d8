"""What the pages of the dashboard tell, as plain values: each page out of one session that cannot write."""
