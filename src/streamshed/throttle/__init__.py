"""How much work a join does: which parts of its windows it goes through, and at what cost."""
