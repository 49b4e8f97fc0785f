"""The auditor: does a simulator give several actions the same noise, and if not, why not?

`audit` walks to several states, asks one question in many ways (again, in another order, after other questions, with
global generators moved) and compares the answers bit for bit. What is random in its verdict is one check alone, that
each coordinate of a query has the law of a plain step; its false-alarm rate is an argument and stands in the report.
"""

from jointmdp.decisions.auditor.audit_report import AuditReport, Check
from jointmdp.decisions.auditor.auditing import audit

__all__ = ["AuditReport", "Check", "audit"]
