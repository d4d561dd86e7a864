"""Who asks: principals of clients."""
