"""Samplers that draw as a recorded run did, and the files of its draws."""
