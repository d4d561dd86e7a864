"""What the admin app reads from a broker and changes in it: one module per area, each with its values and its Protocol.

``cluster/`` has what each broker of a cluster answers alike, ``node/`` what only the one knows that is asked about.
``view.py`` joins the Protocols of each to ``ClusterView`` and ``NodeView``.
"""
