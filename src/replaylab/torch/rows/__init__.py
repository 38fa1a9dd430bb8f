"""Where steps are stored, and what drawn ones become."""
