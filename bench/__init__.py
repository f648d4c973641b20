"""What this package costs, compared with what people use today. `make bench` measures it."""
