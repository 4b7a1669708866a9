"""The joins themselves: one loop for each kind of condition."""
