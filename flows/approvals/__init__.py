"""Reviews and decisions at the gates, on screen and offline."""
