"""Checks of `DeviceReplay` on a GPU against its targets: `make device-check`."""
