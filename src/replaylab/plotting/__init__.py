"""Figures as small SVG and as pixels, in one palette."""
