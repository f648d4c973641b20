"""What this package costs, beside what people use today. `make bench` prints it."""
