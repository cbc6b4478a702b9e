"""The system: durable files, devices, arrays on disk, texts that are safe to show."""
