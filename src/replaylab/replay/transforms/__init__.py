"""What a drawn step becomes."""
