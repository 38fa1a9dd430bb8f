"""Learners on tables of action values, and exact values to hold them against."""
