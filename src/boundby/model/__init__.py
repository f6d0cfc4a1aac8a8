"""What every room speaks: causes and scenarios, intervals and step functions, arrays, numbers for people, errors."""
