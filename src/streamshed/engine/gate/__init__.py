"""Gates: what happens to a row before it is joined: it waits, is dropped, or goes to disk."""
