"""What is done to inputs, activations and outputs besides the net: learnable or fixed."""
