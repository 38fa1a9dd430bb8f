"""How good a policy is: returns, values, their error."""
