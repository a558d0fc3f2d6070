"""Are attributions faithful? Experiments that run the model themselves, with tokens or components removed."""
