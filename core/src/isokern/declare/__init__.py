"""How an operator is declared, and what follows from a declaration: checks, inference, normal forms, samples, error bounds."""
