"""Questions asked of simulators: which decision is better, and is the noise really shared?"""
