"""Vector environments whose sub-environments depend on their own seeds alone."""
