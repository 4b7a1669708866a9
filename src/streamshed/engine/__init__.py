"""The one engine: a loop over rows, and the components that it is put together from."""
