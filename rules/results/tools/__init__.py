"""What calls and results say of themselves: arguments, command lines, exit status."""
