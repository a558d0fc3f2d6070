"""Similarity of two texts: embeddings as small heads, and the exact account of their product, token by token.

With a forward pass frozen, an embedding is affine in the states that enter the first layer, `e = sum_k p_k + beta`, so that
the product of two is a table of pairs of tokens, two margins and a constant. `spec` and `folder` describe how a model
computes an embedding from its last states, `plain` computes it as the model's users do, `steps` writes it as the steps of a
head, `recording` captures a text, and `account` decomposes a similarity.
"""
