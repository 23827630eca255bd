/* Windows' source annotations, as nothing. */
#ifndef SN_SAL_H
#define SN_SAL_H

#define _In_
#define _In_opt_
#define _In_z_
#define _In_reads_(n)
#define _In_reads_opt_(n)
#define _In_reads_bytes_(n)
#define _In_reads_bytes_opt_(n)
#define _Inout_
#define _Inout_opt_
#define _Inout_updates_(n)
#define _Inout_updates_bytes_(n)
#define _Out_
#define _Out_opt_
#define _Out_writes_(n)
#define _Out_writes_opt_(n)
#define _Out_writes_to_(n, m)
#define _Out_writes_bytes_(n)
#define _Out_writes_bytes_to_(n, m)
#define _Outptr_
#define _Outptr_opt_
#define _Outptr_result_maybenull_
#define _Ret_maybenull_
#define _Post_invalid_
#define _Post_ptr_invalid_
#define _Frees_ptr_
#define _Frees_ptr_opt_
#define _Guarded_by_(lock)
#define _Acquires_lock_(lock)
#define _Releases_lock_(lock)
#define _Requires_lock_held_(lock)
#define _Requires_lock_not_held_(lock)
#define _Success_(condition)
#define _Check_return_
#define _Must_inspect_result_
#define _Use_decl_annotations_
#define _When_(condition, annotations)
#define _At_(target, annotations)
#define _Analysis_assume_(condition)
#define _Function_class_(name)
#define _Field_size_(n)
#define _Field_size_bytes_(n)
#define _Null_terminated_
#define _Printf_format_string_
#define _Interlocked_operand_

#endif
