"""What calls and results say of themselves: arguments, command lines, exit status.

Law: what is not certain is not said.
"""
