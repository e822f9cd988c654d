"""The texts that replace the cut part of a conversation.

Law: computed from the transcript, the policy and a model's answer. The call to the model is made by `proxy`, never
here.
"""
