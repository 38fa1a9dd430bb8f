"""What `DeviceReplay` does on a GPU, against its targets: `make device-check`."""
