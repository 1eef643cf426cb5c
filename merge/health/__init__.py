"""Whether saved rollouts are what they claim to be: fourteen deterministic checks over rows, without a model.

A finding makes a row ``unhealthy``; a check that lacks its evidence makes it ``unobserved``, never healthy. Reads rows, writes
two reports beside them, and changes no score.
"""
