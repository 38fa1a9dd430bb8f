"""What learners and the training loop know of each other."""
