"""What the dialects share to read and write the content of a message: texts, images, files and cache markers.

Law: dialects write these parts in nearly the same way. A member that only one dialect knows is in that dialect's room.
"""
