"""Programs with known answers: written down, run on a model of the machine, exported as nsys would."""
