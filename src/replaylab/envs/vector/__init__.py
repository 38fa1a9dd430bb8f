"""Vector environments whose copies depend only on their own seeds."""
