"""What a request says about its model and its endpoint, apart from its conversation.

Law: only the path and one member of the body are read.
"""
