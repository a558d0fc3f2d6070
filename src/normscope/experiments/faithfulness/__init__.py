"""Are attributions faithful? Experiments that ask the model itself, with tokens or components taken away."""
